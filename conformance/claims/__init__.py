"""Claims: what is stated, whether the statements agree with each other and with the hardware, and what the gate lets through."""
