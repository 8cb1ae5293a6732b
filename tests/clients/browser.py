"""The console in a headless Chromium, as a person at a cabinet uses it: logs in with a token, looks at every page in both
languages, on a small panel and on a desk, light and dark, holds each against axe-core, answers the waiting question, takes
the waiting proposal, and stops the task that is named. Prints what it found as one JSON object.

usage: browser.py CHROMIUM CHROMEDRIVER URL TOKEN TASK [FOLDER FOR SCREENSHOTS]
"""

import json
import pathlib
import sys
import tempfile

import axe_core_python
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WAIT = 60
AXE = (pathlib.Path(axe_core_python.__file__).parent / "axe.min.js").read_text()
# Without a network: whatever a browser fetches by itself is off.
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()
SCREENS = [(800, 480, "dark", "en"), (1440, 900, "light", "zh-CN")]
chromium, driver, url, token, task = sys.argv[1:6]
pictures = pathlib.Path(sys.argv[6]) if len(sys.argv) > 6 else None


def browser(width, height, scheme):
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS, f"--user-data-dir={tempfile.mkdtemp()}"]:
        options.add_argument(flag)
    opened = webdriver.Chrome(options=options, service=Service(driver))
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    # axe is put into the page by us; the page itself may run nothing that is not its own.
    opened.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    return opened


def log_in(opened, lang):
    opened.get(f"{url}lang?to={lang}&back=/login")
    field = opened.find_element(By.ID, "token")
    field.send_keys(token)
    field.submit()
    WebDriverWait(opened, WAIT).until(lambda it: it.find_elements(By.CSS_SELECTOR, "nav a"))


def press(opened, place, action, hidden):
    """Presses the button of the form that sends `hidden` to `action`."""
    opened.get(url + place)
    button = f'form[action="{action}"]:has(input[value="{hidden}"]) button'
    # A page that has just heard of a change puts its content in anew, under the pointer.
    renewed = WebDriverWait(opened, WAIT, ignored_exceptions=[StaleElementReferenceException])
    renewed.until(lambda it: it.find_element(By.CSS_SELECTOR, button).click() or True)
    WebDriverWait(opened, WAIT).until(lambda it: it.find_elements(By.CSS_SELECTOR, ".note"))
    return opened.find_element(By.CSS_SELECTOR, ".note").text


found = {"pages": 0, "violations": [], "wide": []}
for width, height, scheme, lang in SCREENS:
    opened = browser(width, height, scheme)
    try:
        log_in(opened, lang)
        links = [link.get_attribute("href") for link in opened.find_elements(By.CSS_SELECTOR, "nav a")]
        for number, link in enumerate([*links, f"{url}tasks/{task}"]):
            opened.get(link)
            opened.execute_script(AXE)
            report = opened.execute_async_script("axe.run().then(arguments[0])")
            found["violations"] += [
                [link[len(url) :], scheme, one["id"], one["impact"], one["nodes"][0]["html"]] for one in report["violations"]
            ]
            # A page that is wider than its screen cannot be read with gloves on.
            if opened.execute_script("return document.documentElement.scrollWidth > innerWidth"):
                found["wide"].append([link[len(url) :], width])
            found["pages"] += 1
            if pictures:
                opened.save_screenshot(str(pictures / f"{lang}-{width}-{number}.png"))
        if lang == "zh-CN":
            opened.get(url)
            question = opened.find_element(By.CSS_SELECTOR, "section.question").get_attribute("aria-labelledby")
            found["answered"] = press(opened, "questions", "/ask/allow", question)
            opened.get(f"{url}reviews")
            proposal = opened.find_element(By.CSS_SELECTOR, 'form[action="/learn/approve"] input[name="proposal"]')
            found["approved"] = press(opened, "reviews", "/learn/approve", proposal.get_attribute("value"))
            opened.get(f"{url}tasks/{task}")
            found["task"] = opened.find_element(By.TAG_NAME, "main").text
            found["stopped"] = press(opened, f"tasks/{task}", "/task/stop", task)
    finally:
        opened.quit()
print(json.dumps(found, ensure_ascii=False))
