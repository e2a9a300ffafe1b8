"""Text: tokens, stems, sentences, secrets, and safe output for a terminal."""
