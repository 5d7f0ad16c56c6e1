"""A mouse over a page: what the tip says of a mark."""

import time
from typing import Any


def told_of(browser: Any, mark: Any) -> str:
    """Point at a mark and return what the tip says, with plain spaces; '' if it never says anything.

    The mark is scrolled into view first. A page hides its tip when it is scrolled, and is told so some frames later:
    whoever points earlier points again.
    """
    from selenium.webdriver.common.action_chains import ActionChains

    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", mark)
    tip = browser.find_element("css selector", "#tip")
    for _ in range(30):
        ActionChains(browser).move_to_element(mark).perform()
        time.sleep(0.1)
        if words := str(tip.text):
            return words.replace("\u202f", " ")
        ActionChains(browser).move_by_offset(40, 40).perform()
    return ""
