"""What every room stands on: types, errors, files, settings, the places of a store."""
