"""The colours of all figures."""

# People with red-green colour blindness can tell these apart (after Okabe and Ito 2008); legible on white and on black.
BLUE, ORANGE, GREEN, PINK, GREY = "#3287c8", "#e07b00", "#0a9e78", "#cc6fa3", "#8b8f98"
