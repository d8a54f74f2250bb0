"""What the trainings over sites of the scenarios read and write in the current folder."""
import os


def last_step():
    """The step at which the training is to end, once the file `enough` has its number."""
    try:
        with open("enough") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return 1 << 60


def tell(site, *numbers):
    """The file steps.SITE has these numbers, at any moment all of them."""
    with open(f"steps.{site}.new", "w") as file:
        print(*numbers, file=file)
    os.rename(f"steps.{site}.new", f"steps.{site}")
