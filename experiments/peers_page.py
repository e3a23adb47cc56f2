"""The page and the figures of the comparison beside AIM and MST."""
from experiments.peers import PeerRecord
def draw_peers(records, folder): return []
def write_peers_page(records, folder): return folder/"peers.md"
