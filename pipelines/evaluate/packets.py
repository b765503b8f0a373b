"""What the judge, the nursery and candidates send one another: JSON, a packet each."""

#: Longest packet, bytes.
PACKET = 1 << 20
