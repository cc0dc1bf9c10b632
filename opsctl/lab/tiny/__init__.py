"""Makes the lab's tiny target and its drafter; runs in the lab's virtual environment only."""
