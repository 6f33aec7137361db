# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chromium without a window, for pages that lathe writes; what their scripts say on the console is kept."""
import contextlib

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By


class Browser:
    def __init__(self, driver):
        self.driver = driver

    def open(self, path):
        self.driver.get(f"file://{path}")

    def all(self, selector):
        """The elements of a CSS selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        found, = self.all(selector)
        return found

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def errors(self):
        """What went wrong in the page's scripts, or was asked of the net, since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def picture(self, path):
        self.driver.save_screenshot(str(path))


@contextlib.contextmanager
def browser(width=1200, height=700):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    # The sandbox wants rights that root in a container lacks; pages are our own.
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
                 f"--window-size={width},{height}", "--force-device-scale-factor=1",
                 "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
