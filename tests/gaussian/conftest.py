import sys
from pathlib import Path

# battery.py and gaussian_functions.py, the functions under test, are plain modules beside the tests
sys.path.insert(0, str(Path(__file__).parent))
