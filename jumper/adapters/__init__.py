"""What was measured, as the documents' containers: tables by level and node, and their files."""
