//! A browser without a window, driven over chromedriver's WebDriver API: real keys, and what the page says afterwards.

use crate::error::Error;
use crate::http::Peer;
use crate::process::Command;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long the driver may take to start, and the browser for an answer: a guard against hanging.
const PATIENCE: Duration = Duration::from_secs(120);
/// What stands in the driver's output before its port.
const STARTED: &str = "started successfully on port ";
/// The names under which a browser may be installed.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// The key of an element's id, as the standard has it.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A command that succeeds where both programs are.
pub(crate) const PROBE: &str = "command -v chromedriver && \
    { command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable; }";

/// A running browser with one page.
pub(crate) struct Browser {
    driver: Child,
    address: String,
    session: String,
}

impl Browser {
    /// Starts driver and browser; what the browser stores goes to `profile`, which must be fresh.
    pub(crate) fn start(profile: &Path) -> Result<Self, Error> {
        let command = Command::new("chromedriver").args(["--port=0"]);
        let mut builder = command.builder();
        builder.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = builder.spawn().map_err(|why| command.not_started(&why))?;
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = driver.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Read on without a listener: a full pipe would stop the driver.
                    let _nobody_listens = sender.send(line);
                }
            });
        }
        // From here on the driver ends with this value.
        let mut browser = Self { driver, address: String::new(), session: String::new() };
        browser.address = loop {
            let line = lines.recv_timeout(PATIENCE);
            let line = line.map_err(|why| Error::check(format!("chromedriver does not say its port: {why}")))?;
            if let Some(port) = port_of(&line) {
                break format!("127.0.0.1:{port}");
            }
        };
        let session = browser.ask("POST", "/session", Some(&capabilities(profile)))?;
        let id = session.get("sessionId").and_then(Value::as_str).unwrap_or_default();
        browser.session = format!("/session/{id}");
        Ok(browser)
    }

    fn ask(&self, verb: &str, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        let path = format!("{}{path}", self.session);
        let failed = |why: &dyn std::fmt::Display| Error::check(format!("chromedriver, {verb} {path}: {why}"));
        let body = body.map(Value::to_string).unwrap_or_default();
        let text = format!(
            "{verb} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let answer = Peer::exchange(&self.address, &text).map_err(|why| failed(&why))?;
        let mut value: Value = serde_json::from_str(&answer.body).map_err(|why| failed(&why))?;
        let value = value.get_mut("value").map(Value::take).unwrap_or_default();
        if answer.head.status != 200 {
            return Err(failed(&value.get("message").unwrap_or(&value)));
        }
        Ok(value)
    }

    /// Loads a page, and waits until it is there.
    pub(crate) fn open(&self, url: &str) -> Result<(), Error> {
        self.ask("POST", "/url", Some(&json!({ "url": url }))).map(drop)
    }

    fn element(&self, selector: &str) -> Result<String, Error> {
        let found = self.ask("POST", "/element", Some(&json!({"using": "css selector", "value": selector})))?;
        let id = found.get(ELEMENT).and_then(Value::as_str);
        id.map(str::to_string).ok_or_else(|| Error::check(format!("the page has no {selector}")))
    }

    /// The text of an element, as a reader sees it.
    pub(crate) fn text(&self, selector: &str) -> Result<String, Error> {
        let text = self.ask("GET", &format!("/element/{}/text", self.element(selector)?), None)?;
        Ok(text.as_str().unwrap_or_default().to_string())
    }

    /// Clicks an element, as a pointer does.
    pub(crate) fn click(&self, selector: &str) -> Result<(), Error> {
        self.ask("POST", &format!("/element/{}/click", self.element(selector)?), Some(&json!({}))).map(drop)
    }

    /// Presses keys in an element.
    pub(crate) fn press(&self, selector: &str, keys: &str) -> Result<(), Error> {
        let path = format!("/element/{}/value", self.element(selector)?);
        self.ask("POST", &path, Some(&json!({ "text": keys }))).map(drop)
    }

    /// Evaluates an expression in the page.
    pub(crate) fn value_of(&self, expression: &str) -> Result<Value, Error> {
        self.ask("POST", "/execute/sync", Some(&json!({"script": format!("return {expression}"), "args": []})))
    }

    /// Makes the page as wide and as high as a screen of this size.
    pub(crate) fn screen(&self, width: u32, height: u32) -> Result<(), Error> {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        let body = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
        self.ask("POST", "/goog/cdp/execute", Some(&body)).map(drop)
    }

    /// Asks the page for its light or its dark colours.
    pub(crate) fn dark(&self, dark: bool) -> Result<(), Error> {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let body = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.ask("POST", "/goog/cdp/execute", Some(&body)).map(drop)
    }

    /// The elements that match and have no name for who does not see them, by their HTML.
    pub(crate) fn nameless(&self, selector: &str) -> Result<Vec<String>, Error> {
        let found = self.ask("POST", "/elements", Some(&json!({"using": "css selector", "value": selector})))?;
        let ids = found.as_array().into_iter().flatten().filter_map(|element| element.get(ELEMENT)?.as_str());
        let mut nameless = Vec::new();
        for id in ids {
            let name = self.ask("GET", &format!("/element/{id}/computedlabel"), None)?;
            if name.as_str().is_none_or(|name| name.trim().is_empty()) {
                let html = self.ask("GET", &format!("/element/{id}/property/outerHTML"), None)?;
                nameless.push(html.as_str().unwrap_or_default().chars().take(80).collect());
            }
        }
        Ok(nameless)
    }

    /// What the console was told since the last time, from warnings on.
    pub(crate) fn complaints(&self) -> Result<Vec<String>, Error> {
        let log = self.ask("POST", "/se/log", Some(&json!({"type": "browser"})))?;
        let entries = log.as_array().ok_or_else(|| Error::check("the browser keeps no log"))?;
        Ok(entries.iter().filter_map(|entry| entry.get("message")?.as_str()).map(str::to_string).collect())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Ends the browser; the driver alone would leave it.
            let _gone = self.ask("DELETE", "", None);
        }
        let _gone = self.driver.kill().and_then(|()| self.driver.wait());
    }
}

fn port_of(line: &str) -> Option<u16> {
    line.split_once(STARTED)?.1.trim_end_matches('.').parse().ok()
}

fn capabilities(profile: &Path) -> Value {
    let mut args: Vec<String> = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
    ]
    .map(str::to_string)
    .to_vec();
    args.push(format!("--user-data-dir={}", profile.display()));
    let mut options = json!({ "args": args });
    let there = BROWSERS.iter().find(|name| Command::new(**name).args(["--version"]).works());
    if let Some(path) = there.and_then(|name| path_of(name)) {
        options["binary"] = path.into();
    }
    json!({"capabilities": {"alwaysMatch": {
        "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "WARNING"},
    }}})
}

fn path_of(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())?;
    Some(found.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::port_of;

    #[test]
    fn the_port_is_read_from_what_the_driver_says() {
        assert_eq!(port_of("ChromeDriver was started successfully on port 40317."), Some(40317));
        assert_eq!(port_of("Starting ChromeDriver 150.0 on port 0"), None);
    }
}
