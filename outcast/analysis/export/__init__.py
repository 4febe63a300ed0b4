"""The packets of a run for other programs: Wireshark, spreadsheets, data frames."""
