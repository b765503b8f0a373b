"""What the judge, the fork server and candidates send one another: JSON, a packet each."""

#: Longest packet, bytes.
PACKET = 1 << 20
