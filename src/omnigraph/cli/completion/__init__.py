"""Completion of command lines: scripts for shells, and the answers that they ask the program for."""
