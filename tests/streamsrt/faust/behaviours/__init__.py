"""What Faust's own tests expect of applications, tried here behaviour by behaviour (``behaviours.csv``)."""
