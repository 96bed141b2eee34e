"""What every room stands on: errors, checks of arguments, safe files, modules and batches; imports no other room."""
