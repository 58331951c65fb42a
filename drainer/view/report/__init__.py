"""Reports: what a command found, as one HTML page that needs nothing but itself.

Charts are SVG in the page. There is no script in it, and nothing is loaded from anywhere.
"""
