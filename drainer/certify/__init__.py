"""An extension that checks what a handler promises, for drainer.testing and the command certify."""
