"""What people call: a run opened, a command measured, a monitoring service."""
