"""Reports: what a command found, as a single HTML file.

Charts are SVG within the page. It has no script, and loads nothing from anywhere.
"""
