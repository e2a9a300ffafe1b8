"""What goes into a prompt: documents, assembly, injection."""
