"""The console in a headless Chromium, as a person at a cabinet uses it. Prints what it found as one JSON object.

`operate`: logs in with a token, looks at every page in both languages, on a small panel and on a desk, light and dark,
holds each against axe-core, reads without scripts, finds out why a task is stuck and stops it, answers the waiting
question, takes the waiting proposal, and follows one command from the voice to the register.

`hostile`: opens pages full of what somebody else wrote, with the policy of the page off, so that only its escaping stands
between that and the browser.

usage: browser.py PLAN, a JSON object: journey, chromium, driver, url, token, pictures (or null), and what the journey needs
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
SCREENS = [(800, 480, "dark", "en"), (1440, 900, "light", "zh-CN"), (800, 480, "light", "zh-CN"), (1440, 900, "dark", "en")]
plan = json.loads(sys.argv[1])
url = plan["url"]


def browser(width, height, scheme, scripts=True):
    options = webdriver.ChromeOptions()
    options.binary_location = plan["chromium"]
    for flag in [*FLAGS, f"--user-data-dir={tempfile.mkdtemp()}"]:
        options.add_argument(flag)
    if not scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    opened = webdriver.Chrome(options=options, service=Service(plan["driver"]))
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
    field.send_keys(plan["token"])
    field.submit()
    WebDriverWait(opened, WAIT).until(lambda it: it.find_elements(By.CSS_SELECTOR, "nav a"))


def picture(opened, name):
    if plan.get("pictures"):
        opened.save_screenshot(str(pathlib.Path(plan["pictures"]) / f"{name}.png"))


def text(opened, selector="main"):
    # A page that has just heard of a change puts its content in anew.
    renewed = WebDriverWait(opened, WAIT, ignored_exceptions=[StaleElementReferenceException])
    return renewed.until(lambda it: it.find_element(By.CSS_SELECTOR, selector).text)


def attribute(opened, selector, name):
    renewed = WebDriverWait(opened, WAIT, ignored_exceptions=[StaleElementReferenceException])
    return renewed.until(lambda it: it.find_element(By.CSS_SELECTOR, selector).get_attribute(name))


def follow(opened, selector):
    """Follows the first link of this kind."""
    before = opened.current_url
    renewed = WebDriverWait(opened, WAIT, ignored_exceptions=[StaleElementReferenceException])
    renewed.until(lambda it: it.find_element(By.CSS_SELECTOR, selector).click() or True)
    WebDriverWait(opened, WAIT).until(lambda it: it.current_url != before)


def press(opened, place, action, hidden):
    """Presses the button of the form that sends `hidden` to `action`, on a page that is open or at a place."""
    if place is not None:
        opened.get(url + place)
    button = f'form[action="{action}"]:has(input[value="{hidden}"]) button'
    renewed = WebDriverWait(opened, WAIT, ignored_exceptions=[StaleElementReferenceException])
    renewed.until(lambda it: it.find_element(By.CSS_SELECTOR, button).click() or True)
    WebDriverWait(opened, WAIT).until(lambda it: it.find_elements(By.CSS_SELECTOR, "main .note"))
    return text(opened, "main .note")


def judge(opened, found, name, place):
    """Holds the page that is open against axe-core, and its width against the screen."""
    opened.execute_script(AXE)
    report = opened.execute_async_script("axe.run().then(arguments[0])")
    found["violations"] += [[place, name, one["id"], one["impact"], one["nodes"][0]["html"]] for one in report["violations"]]
    # A page that is wider than its screen cannot be read with gloves on.
    if opened.execute_script("return document.documentElement.scrollWidth > innerWidth"):
        found["wide"].append([place, name])
    found["pages"] += 1


def operate():
    task = plan["task"]
    found = {"pages": 0, "violations": [], "wide": []}
    for width, height, scheme, lang in SCREENS:
        opened = browser(width, height, scheme)
        name = f"{lang}-{width}-{scheme}"
        try:
            opened.get(f"{url}lang?to={lang}&back=/login")
            judge(opened, found, name, "login")
            log_in(opened, lang)
            links = [link.get_attribute("href") for link in opened.find_elements(By.CSS_SELECTOR, "nav ul a")]
            for number, link in enumerate([*links, f"{url}tasks/{task}"]):
                opened.get(link)
                judge(opened, found, name, link[len(url) :])
                picture(opened, f"{name}-{number}")
        finally:
            opened.quit()
    found["read"] = read_without_scripts([link[len(url) :] for link in links])
    opened = browser(800, 480, "dark")
    try:
        log_in(opened, "zh-CN")
        # Why is it stuck? From the overview, by its link.
        found["overview"] = text(opened)
        follow(opened, f'a[href="/tasks/{task}"]')
        found["task"] = text(opened)
        picture(opened, "stuck")
        found["stopped"] = press(opened, None, "/task/stop", task)
        # What waits for a yes? From the overview too.
        opened.get(url)
        follow(opened, 'a.figure[href="/questions"]')
        found["question"] = text(opened, "section.question")
        question = attribute(opened, "section.question", "aria-labelledby")
        picture(opened, "question")
        found["answered"] = press(opened, None, "/ask/allow", question)
        picture(opened, "answered")
        opened.get(f"{url}reviews")
        proposal = attribute(opened, 'form[action="/learn/approve"] input[name="proposal"]', "value")
        found["proposal"] = text(opened, "section.card")
        found["approved"] = press(opened, None, "/learn/approve", proposal)
        picture(opened, "approved")
    finally:
        opened.quit()
    opened = browser(1440, 900, "light")
    try:
        # What became of what was said? The words, the row, its run, and the value at the device.
        log_in(opened, "zh-CN")
        opened.get(f"{url}evidence")
        field = opened.find_element(By.ID, "text")
        field.send_keys(plan["said"])
        field.submit()
        WebDriverWait(opened, WAIT).until(lambda it: "text=" in it.current_url)
        judge(opened, found, "journey", "evidence?text=")
        picture(opened, "searched")
        follow(opened, 'td a[href^="/runs/"]')
        found["trace"] = text(opened)
        judge(opened, found, "journey", "run")
        picture(opened, "run")
        follow(opened, 'td a[href^="/evidence/"]')
        found["row"] = text(opened)
        judge(opened, found, "journey", "row")
        picture(opened, "row")
        follow(opened, 'nav ul a[href="/devices"]')
        rows = opened.find_elements(By.CSS_SELECTOR, f'[aria-label="{plan["device"]}"] tbody tr')
        found["device"] = [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows]
        picture(opened, "device")
    finally:
        opened.quit()
    return found


def read_without_scripts(places):
    opened = browser(800, 480, "light", scripts=False)
    try:
        log_in(opened, "en")
        read = {}
        for place in places:
            opened.get(url + place)
            read[place] = [opened.find_element(By.TAG_NAME, "h1").text, len(text(opened))]
        picture(opened, "no-scripts")
        return read
    finally:
        opened.quit()


def hostile():
    LOOK = """
      const all = Array.from(document.querySelectorAll("*"));
      const acts = (it) => Array.from(it.attributes).some((at) => at.name.startsWith("on") || /^\\s*javascript:/i.test(at.value));
      return {
        hurt: document.title === "hurt",
        scripts: Array.from(document.scripts).map((it) => it.getAttribute("src")).filter((it) => it !== "/live.js").length,
        elements: all.filter((it) => ["IMG", "IFRAME", "OBJECT", "EMBED", "TEXTAREA", "STYLE", "BASE"].includes(it.tagName)).length,
        acts: all.filter(acts).length,
        away: Array.from(document.links).filter((it) => it.origin !== location.origin).length,
        shown: document.body.innerText.includes("<script>document.title='hurt'"),
      }"""
    found = {"pages": 0, "hurt": [], "shown": 0, "changed": None}
    opened = browser(1440, 900, "light")
    try:
        log_in(opened, "zh-CN")
        for place in plan["places"]:
            opened.get(url + place.lstrip("/"))
            seen = opened.execute_script(LOOK)
            found["shown"] += seen.pop("shown")
            found["pages"] += 1
            if any(seen.values()):
                found["hurt"].append([place, seen])
        # A page that hears of a change puts in what it fetched: that is the second way of words into a page.
        opened.get(f"{url}questions")
        picture(opened, "hostile")
        opened.execute_script("document.querySelector('main').dataset.old = '1'")
        opened.execute_async_script("""
          const done = arguments[0], csrf = document.querySelector('input[name="csrf"]').value;
          const question = document.querySelector('input[name="question"]').value;
          const body = new URLSearchParams({ csrf, question, back: "/questions" });
          fetch("/ask/deny", { method: "POST", body }).then(() => done())""")
        WebDriverWait(opened, WAIT).until(lambda it: not it.find_elements(By.CSS_SELECTOR, "main[data-old]"))
        found["changed"] = opened.execute_script(LOOK)
    finally:
        opened.quit()
    return found


print(json.dumps({"operate": operate, "hostile": hostile}[plan["journey"]](), ensure_ascii=False))
