"""What an estimate is made of: effects, their intervals, families of tests, notes and checks."""
