"""Files of remote graphs that this machine keeps on its disk."""
