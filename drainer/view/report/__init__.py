"""Reports: what a command found, as a single HTML file.

Charts are SVG within the page. A report has no script that runs, and loads nothing from elsewhere.
"""
