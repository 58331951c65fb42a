"""The command probe: it checks what a drain would need, and changes nothing. An extension."""
