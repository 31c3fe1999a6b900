//! A real browser, told what to do through a driver: what pages see of the server.

use super::{Child, Client, PATIENCE, TempDir, eventually, tool};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

/// A headless Chromium under a driver of its own (W3C WebDriver). Both end with the handle.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// `None` if there is no browser on this host.
    pub(crate) fn start() -> Option<Browser> {
        let (chromium, chromedriver) = (tool("chromium")?, tool("chromedriver")?);
        let profile = TempDir::new();
        let (driver, address) = drive(&chromedriver, profile.path());
        let mut browser = Browser { driver, address, session: String::new(), _profile: profile };
        let data = format!("--user-data-dir={}", browser._profile.path().join("data").display());
        let arguments: Vec<&str> = FLAGS.iter().copied().chain([data.as_str()]).collect();
        let options = json!({"binary": chromium, "args": arguments});
        let capabilities = json!({"alwaysMatch": {
            "acceptInsecureCerts": true,
            "goog:chromeOptions": options,
        }});
        let session = browser.post("", &json!({"capabilities": capabilities}));
        browser.session = format!("/{}", session["sessionId"].as_str().expect("a session"));
        Some(browser)
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// Shows pages in so many pixels of CSS.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let command = "Emulation.setDeviceMetricsOverride";
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": size}));
    }

    /// Runs a function's body in the page, and returns what it returns.
    pub(crate) fn run(&mut self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    fn post(&mut self, command: &str, parameters: &Value) -> Value {
        let target = format!("/session{}{command}", self.session);
        let body = parameters.to_string();
        let fields = "Content-Type: application/json\r\n";
        let mut driver = Client::connect(self.address);
        let response = driver.ask("POST", &target, fields, body.as_bytes());
        assert_eq!(response.status, 200, "{response:?} {}", self.driver.err());
        response.json()["value"].clone()
    }
}

/// Begins the driver, which writes into `home`. It takes a port of IPv6 that is free, and ends if
/// the one of IPv4 with that number is not.
fn drive(chromedriver: &Path, home: &Path) -> (Child, SocketAddr) {
    let spawn = || {
        let mut command = Command::new(chromedriver);
        Child::spawn(command.arg("--port=0").env("HOME", home).env("TMPDIR", home))
    };
    let mut driver = spawn();
    let address = eventually("the driver says its port", || {
        if !driver.is_running() {
            let out = driver.out();
            assert!(out.contains("port not available"), "{out}{}", driver.err());
            driver = spawn();
        }
        let out = driver.out();
        let (_, rest) = out.split_once("started successfully on port ")?;
        let port = rest.split_once('.')?.0;
        Some(SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())))
    });
    (driver, address)
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser before it answers, and itself ends with its handle. A test
        // that failed must not fail again here.
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let request =
                format!("DELETE /session{} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.session);
            let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read(&mut [0; 1024]));
        }
    }
}

/// Nothing of the browser but the page: no graphics card, no traffic of its own.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--proxy-server=direct://",
    "--window-size=1200,900",
];
