"""What breaks trust at 3 am, case by case, tried against the installed command."""
