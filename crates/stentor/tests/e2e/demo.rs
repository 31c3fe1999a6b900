//! The demo in a real browser: real prices appear, and change.

use crate::support::{Browser, Child, TempDir, Url, eventually, stentor, tool};
use serde_json::{Value, json};
use std::process::Command;

/// A demo on ports of its own, the address of its public listener, and where it puts its page.
fn demo(flags: &[&str]) -> (Child, Url, TempDir) {
    let dir = TempDir::new();
    let ports = ["demo", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"];
    let mut child = Child::spawn(stentor(ports).args(flags).env("TMPDIR", dir.path()));
    let address = eventually("it says where to look", || {
        assert!(child.is_running(), "{}", child.err());
        let out = child.out();
        let url = out.split_ascii_whitespace().find(|word| word.ends_with("/demo/"))?;
        Some(url.trim_start_matches("http://").trim_end_matches("/demo/").parse().unwrap())
    });
    (child, Url(address), dir)
}

#[test]
fn the_demo_replays_prices() {
    let (mut child, url, dir) = demo(&["--speed", "100", "--from", "2012-05-18"]);
    let page = url.get("/demo/").expect(200);
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.text().starts_with("<!doctype html>"));
    for symbol in ["aapl", "fb", "goog", "ibm", "msft"] {
        let quote = eventually("the first quote", || {
            let response = url.get(&format!("/quotes/{symbol}"));
            (response.status == 200).then(|| response.json())
        });
        assert_eq!(quote["symbol"], symbol.to_ascii_uppercase());
        assert!(quote["close"].as_f64().is_some_and(|close| close > 1.0), "{quote}");
        eventually("the price changes", || {
            let next = url.get(&format!("/quotes/{symbol}")).json();
            (next["close"] != quote["close"] && next["date"] != quote["date"]).then_some(())
        });
    }
    assert_eq!(child.out().matches("    curl ").count(), 4, "{}", child.out());
    assert!(!child.out().contains('\u{1b}'), "no colours where nobody sees them");
    // These two it is told and does not heed.
    child.signal("USR1");
    child.signal("USR2");
    child.signal("INT");
    assert_eq!(child.wait(), Some(0), "{}", child.err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "its page goes with it");
}

#[test]
fn the_demos_curl_lines_work_as_they_are_printed() {
    if tool("curl").is_none() {
        return;
    }
    let (child, url, _dir) = demo(&[]);
    eventually("the first quotes", || (url.get("/quotes/msft").status == 200).then_some(()));
    let mut answers = Vec::new();
    let printed = child.out();
    for line in printed.lines().map(str::trim).filter(|line| line.starts_with("curl ")) {
        // A stream has no end: a few events of it are enough.
        let endless = line.contains("event-stream");
        let limit = if endless { "--max-time 3" } else { "" };
        let line = line.replacen("curl ", &format!("curl -q --silent --noproxy '*' {limit} "), 1);
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        let timed_out = output.status.code() == Some(28);
        assert!(output.status.success() || endless && timed_out, "{line}: {output:?}");
        answers.push(String::from_utf8(output.stdout).unwrap());
    }
    let [value, stream, unchanged, many] = &answers[..] else { panic!("{answers:?}") };
    assert!(stream.starts_with("retry: "), "{stream}");
    assert!(stream.matches("data: {\"symbol\":\"AAPL\"").count() > 1, "{stream}");
    assert!(value.starts_with("HTTP/1.1 200 OK\r\n") && value.contains("\"AAPL\""), "{value}");
    assert!(unchanged.starts_with("HTTP/1.1 304 Not Modified\r\n"), "{unchanged}");
    let many: Value = serde_json::from_str(many).unwrap();
    assert_eq!(
        (&many["aapl"]["symbol"], &many["msft"]["symbol"]),
        (&json!("AAPL"), &json!("MSFT"))
    );
}

#[test]
fn a_browser_shows_prices_that_change() {
    let Some(mut browser) = Browser::start() else { return };
    let (child, url, _dir) = demo(&["--speed", "20"]);
    browser.open(&format!("http://{}/demo/", url.0));
    let prices = |browser: &mut Browser| -> Vec<String> {
        let script = "return [...document.querySelectorAll('.price .close')]\
                      .map(cell => cell.textContent.trim())";
        let cells = browser.run(script);
        cells.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap().to_owned()).collect()
    };
    let first = eventually("five prices appear", || {
        let prices = prices(&mut browser);
        let real = |price: &String| price.parse::<f64>().is_ok_and(|price| price > 1.0);
        (prices.len() == 5 && prices.iter().all(real)).then_some(prices)
    });
    eventually("every price changes", || {
        let next = prices(&mut browser);
        first.iter().zip(&next).all(|(first, next)| first != next).then_some(())
    });
    let text = |browser: &mut Browser, id: &str| -> String {
        let script = format!("return document.getElementById('{id}').textContent");
        browser.run(&script).as_str().unwrap().to_owned()
    };
    assert_eq!(text(&mut browser, "state"), "Live");
    assert!(text(&mut browser, "day").contains("20"), "the day being replayed is shown");
    let lines = browser.run(
        "return [...document.querySelectorAll('.chart .line')]\
                             .filter(line => line.getAttribute('d').includes('L')).length",
    );
    assert_eq!(lines, 5, "every quote has its chart");
    drop(child);
    eventually("the page says that the server is away", || {
        (text(&mut browser, "state") == "Reconnecting").then_some(())
    });
}
