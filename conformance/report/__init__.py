"""The report: one model of facts, and its forms. The reviewer's package holds the same facts against what they rest on."""
