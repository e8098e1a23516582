//! A real browser to look at pages and use them. Installed by `scripts/parts install all`.

use super::executable;
use super::service::{Service, folder};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time limit for the browser, long enough for a loaded machine. Tests wait only until the result is there.
const PATIENCE: Duration = Duration::from_secs(60);

fn chromium(profile: &Path) -> Command {
    let mut command = Command::new(executable("chromium", "chromium"));
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .env("HOME", profile);
    command
}

/// Returns the HTML of the page after its scripts ran, as the browser prints it.
pub fn dom(page: &Path) -> String {
    let output = chromium(&folder("chromium"))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser can be started");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("a page is UTF-8")
}

/// A browser with one tab, driven over its DevTools pipe: commands on descriptor 3, responses on 4, a zero byte after
/// each.
pub struct Browser {
    orders: File,
    answers: Receiver<Value>,
    tab: String,
    asked: u64,
    _process: Service,
}

impl Browser {
    /// Starts a browser.
    pub fn start() -> Self {
        let folder = folder("chromium");
        let (orders, answers) = (folder.join("orders"), folder.join("answers"));
        for pipe in [&orders, &answers] {
            nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe can be made");
        }
        let browser = chromium(&folder);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", r#"exec "$@" 3<"$ORDERS" 4>"$ANSWERS""#, "browser"])
            .arg(browser.get_program())
            .args(browser.get_args())
            .arg("--remote-debugging-pipe")
            .env("HOME", &folder)
            .env("ORDERS", &orders)
            .env("ANSWERS", &answers);
        let process = Service::start("chromium", &shell, &folder);
        // Opening a pipe blocks until the shell has opened its other end.
        let orders = OpenOptions::new().write(true).open(orders).expect("it is read");
        let answers = BufReader::new(File::open(answers).expect("it is written"));
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for answer in answers.split(0).map_while(Result::ok) {
                let answer = serde_json::from_slice(&answer).expect("answers are JSON");
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self {
            orders,
            answers: receiver,
            tab: String::new(),
            asked: 0,
            _process: process,
        };
        let target = browser.order("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.order("Target.attachToTarget", &attach)["sessionId"].clone();
        browser.tab = session.as_str().expect("a session has a name").to_owned();
        browser
    }

    /// Opens a page and waits until it is loaded.
    pub fn open(&mut self, url: &str) {
        let opened = self.order("Page.navigate", &json!({"url": url}));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        let there = format!(
            "document.readyState === 'complete' && location.href === {}",
            json!(url)
        );
        assert!(self.wait_for(&there).is_some(), "{url} does not load");
    }

    /// Sets the color scheme that pages should use: `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.order("Emulation.setEmulatedMedia", &json!({"features": [feature]}));
    }

    /// Forbids scripts: from now on no page runs a script of its own.
    pub fn forbid_scripts(&mut self) {
        self.order("Emulation.setScriptExecutionDisabled", &json!({"value": true}));
    }

    /// Sets the size of the window, in pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.order("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Evaluates an expression of JavaScript in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.order("Runtime.evaluate", &parameters);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is neither null, false nor 0, and returns its value; `None` after the time limit.
    pub fn wait_for(&mut self, expression: &str) -> Option<Value> {
        let started = Instant::now();
        loop {
            let value = self.evaluate(expression);
            if !value.is_null() && value != false && value != 0 {
                return Some(value);
            }
            if started.elapsed() > PATIENCE {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a cookie with every request to this address.
    pub fn set_cookie(&mut self, url: &str, name: &str, value: &str) {
        let cookie = json!({"url": url, "name": name, "value": value});
        self.order("Network.setCookie", &cookie);
    }

    /// Takes a screenshot of the whole page as PNG, including the part outside of the window.
    pub fn picture(&mut self) -> Vec<u8> {
        self.evaluate(
            "document.querySelectorAll('*').forEach((item) => { item.style.contentVisibility = 'visible'; })",
        );
        let taken = self.order("Page.captureScreenshot", &json!({"captureBeyondViewport": true}));
        let data = taken["data"].as_str().expect("a picture is text");
        STANDARD.decode(data).expect("a picture is base64")
    }

    /// Types into the element with the focus.
    pub fn type_text(&mut self, text: &str) {
        self.order("Input.insertText", &json!({"text": text}));
    }

    fn order(&mut self, method: &str, parameters: &Value) -> Value {
        self.asked += 1;
        let mut order = json!({"id": self.asked, "method": method, "params": parameters});
        if !self.tab.is_empty() {
            order["sessionId"] = json!(self.tab);
        }
        write!(self.orders, "{order}\0").expect("the browser lives");
        loop {
            // Skip events: only responses have an id.
            let answer = self.answers.recv_timeout(PATIENCE);
            let answer = answer.unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == self.asked {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }
}
