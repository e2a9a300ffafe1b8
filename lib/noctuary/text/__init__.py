"""Text: tokens, stems, sentences, secrets, and what a terminal may be shown."""
