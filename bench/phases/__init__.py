"""What the phases of use, age and variety do to real answers, each against recall without it."""
