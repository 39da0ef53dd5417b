"""A window that follows an episode."""

from typing import Any

import numpy as np
from jaxtyping import UInt8


class Window:
    """Shows images one after the other in a Matplotlib window.

    Without a display, Matplotlib has no windows (its backend is ``agg``), and the images are drawn
    but not visible.

    Example:
        >>> import matplotlib
        >>> import numpy as np
        >>> matplotlib.use("agg")
        >>> window = Window("reactor")
        >>> window.show(np.zeros((4, 6, 3), np.uint8))
        >>> window.close()
    """

    def __init__(self, title: str) -> None:
        """Creates a window that opens with the first image.

        Args:
            title: Title of the window.
        """
        self._title = title
        self._figure: Any = None
        self._image: Any = None

    def show(self, picture: UInt8[np.ndarray, "height width 3"]) -> None:
        """Replaces the image shown in the window."""
        from matplotlib import pyplot

        if self._figure is None:
            height, width = picture.shape[:2]
            self._figure = pyplot.figure(self._title, figsize=(width / 80, height / 80), dpi=80)
            axes = self._figure.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            self._image = axes.imshow(picture)
            if pyplot.get_backend().lower() != "agg":
                self._figure.show()
        self._image.set_data(picture)
        self._figure.canvas.draw_idle()
        self._figure.canvas.flush_events()

    def close(self) -> None:
        """Closes the window; a later image opens a new one."""
        from matplotlib import pyplot

        if self._figure is not None:
            pyplot.close(self._figure)
            self._figure = None
