"""Cases of broken trust, tried against the installed command."""
