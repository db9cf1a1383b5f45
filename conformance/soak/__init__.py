"""No false alarms: the ladder on many recipes that nobody chose."""
