"""The reviewer's package: everything that a report rests on in one folder, and the check that computes every value in it again."""
