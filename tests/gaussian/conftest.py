import sys
from pathlib import Path

# gaussian_functions.py, the list of functions under test, is a plain module beside the tests
sys.path.insert(0, str(Path(__file__).parent))
