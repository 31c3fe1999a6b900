//! The demo in a real browser: real prices appear, and change.

use crate::support::{
    Browser, Child, Client, TempDir, Url, eventually, free_address, stentor, tool,
};
use serde_json::{Value, json};
use std::process::Command;

/// A demo on ports of its own, the address of its public listener, and where it puts its page.
fn demo(flags: &[&str]) -> (Child, Url, TempDir) {
    demo_at("127.0.0.1:0", flags)
}

fn demo_at(listen: &str, flags: &[&str]) -> (Child, Url, TempDir) {
    let dir = TempDir::new();
    let ports = ["demo", "--listen", listen, "--control", "127.0.0.1:0"];
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
    assert_eq!(url.get("/").expect(301).field("location"), Some("/demo/"));
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
    child.stopped();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "its page goes with it");
}

#[test]
fn the_demo_goes_on_where_it_was() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let flags = ["--data", data.to_str().unwrap(), "--speed"];
    let quote = |url: Url| {
        let response = url.get("/quotes/msft");
        let is_there = response.status == 200;
        is_there.then(|| (response.tag(), response.json()["date"].as_str().unwrap().to_owned()))
    };
    let (mut child, url, _page) = demo(&[&flags[..], &["100"]].concat());
    eventually("some days have gone", || {
        quote(url).filter(|(_, date)| date.as_str() > "2012-06-01")
    });
    child.kill();
    let (_child, url, _page) = demo(&[&flags[..], &["0.01"]].concat());
    let (tag, date) = eventually("a quote is there", || quote(url));
    assert!(date.as_str() > "2012-06-01", "{tag}: {date}");
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

/// What an element of the page says.
fn text(browser: &mut Browser, id: &str) -> String {
    let script = format!("return document.getElementById('{id}').textContent");
    browser.run(&script).as_str().unwrap().to_owned()
}

/// How many messages the page says that it was sent.
fn messages(browser: &mut Browser) -> u64 {
    text(browser, "messages").replace(',', "").parse().unwrap()
}

/// The number of the newest message of a quote.
fn newest(url: Url) -> u64 {
    let quote = url.get("/quotes/aapl");
    if quote.status != 200 {
        return 0;
    }
    quote.tag().trim_matches('"').split_once('-').unwrap().1.parse().unwrap()
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
    assert_eq!(text(&mut browser, "state"), "Live");
    assert!(text(&mut browser, "day").contains("20"), "the day being replayed is shown");
    let lines = browser.run(
        "return [...document.querySelectorAll('.chart .line')]\
                             .filter(line => line.getAttribute('d').includes('L')).length",
    );
    assert_eq!(lines, 5, "every quote has its chart");
    browser.run("performance.clearResourceTimings()");
    drop(child);
    eventually("the page says that the server is away", || {
        (text(&mut browser, "state") == "Reconnecting").then_some(())
    });
    eventually("it has tried in vain, more than once", || {
        let tries = browser.run(
            "return performance.getEntriesByType('resource')\
                                 .filter(({name}) => name.includes('/-/events')).length",
        );
        (tries.as_u64().unwrap() >= 2).then_some(())
    });
    assert_eq!(text(&mut browser, "reconnects"), "1", "one server was lost, once");
}

#[test]
fn an_open_page_goes_on_over_a_kill_without_a_gap() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let flags = ["--data", data.to_str().unwrap(), "--speed", "40"];
    let (mut child, url, page) = demo_at(&free_address().to_string(), &flags);
    browser.open(&format!("http://{}/demo/", url.0));
    // Before, the form would be sent by the browser itself.
    eventually("the page is live", || (text(&mut browser, "state") == "Live").then_some(()));
    browser.run("document.forms.say.text.value = 'still here'; document.forms.say.requestSubmit()");
    eventually("it is in the guestbook", || {
        (url.get("/demo/guestbook").status == 200).then_some(())
    });
    for life in 1..4 {
        let enough = messages(&mut browser) + 20;
        eventually("the page hears quotes", || (messages(&mut browser) > enough).then_some(()));
        child.kill();
        eventually("the page says that the server is away", || {
            (text(&mut browser, "state") == "Reconnecting").then_some(())
        });
        let before = messages(&mut browser);
        let (again, _, _page) = demo_at(&url.0.to_string(), &flags);
        child = again;
        eventually("the page goes on", || {
            let is_live = text(&mut browser, "state") == "Live";
            (is_live && messages(&mut browser) > before + 20).then_some(())
        });
        // A page may have received a message that the server had not written when it was killed.
        // The server reports that as a gap. The writer is a moment behind, so that is rare.
        let gaps: usize = text(&mut browser, "gaps").parse().unwrap();
        assert!(gaps <= 1, "{gaps} gaps in {life} lives");
        assert_eq!(text(&mut browser, "reconnects"), life.to_string());
        assert_eq!(url.get("/demo/guestbook").expect(200).text(), "still here");
    }
    drop((child, page));
}

#[test]
fn charts_begin_with_what_history_has() {
    let Some(mut browser) = Browser::start() else { return };
    let (_child, url, _dir) = demo(&["--speed", "3"]);
    eventually("some days go by", || (newest(url) > 100).then_some(()));
    let before = newest(url);
    browser.open(&format!("http://{}/demo/", url.0));
    eventually("a chart has more days than have gone by since the page was opened", || {
        let line = browser.run("return document.querySelector('.chart .line').getAttribute('d')");
        let days = line.as_str().unwrap_or_default().matches('L').count() as u64;
        let days_since = (newest(url) - before) / 5;
        (days > days_since + 10).then_some(())
    });
    assert_eq!(text(&mut browser, "gaps"), "0", "it has missed nothing");
}

#[test]
fn nothing_moves_on_the_page() {
    let Some(mut browser) = Browser::start() else { return };
    // Long and short names of days and months, and more days than there is history.
    let (_child, url, _dir) = demo(&["--speed", "1000"]);
    for width in [320, 360, 390, 820, 1280, 1440] {
        browser.resize(width, 900);
        browser.open(&format!("http://{}/demo/", url.0));
        browser.run(
            "window.shifts = [];
             new PerformanceObserver(list => shifts.push(...list.getEntries()))
                 .observe({type: 'layout-shift', buffered: true});",
        );
        let enough = messages(&mut browser) + 5 * 250;
        eventually("a year goes by", || (messages(&mut browser) > enough).then_some(()));
        let shift = browser.run("return shifts.reduce((sum, {value}) => sum + value, 0)");
        let what = "return shifts.map(({sources}) => sources.map(({node}) => node?.className))";
        assert!(shift.as_f64().unwrap() <= 0.01, "{width} px: {shift} {}", browser.run(what));
        // The longest day and the longest state there are, whatever was shown just now.
        let script = "const [day, state] = ['day', 'state'].map(id => document.getElementById(id));
             day.innerHTML = 'Wed<span class=\"rest\">nesday</span> 30 September 2009';
             state.textContent = 'Reconnecting';
             state.dataset.state = 'reconnecting';
             const tooWide = ({scrollWidth, clientWidth}) => scrollWidth - clientWidth;
             return tooWide(document.documentElement) + tooWide(state)";
        assert_eq!(browser.run(script), 0, "{width} px: it is as wide as the window");
    }
}

#[test]
fn what_a_visitor_publishes_every_window_hears() {
    let (Some(mut first), Some(mut second)) = (Browser::start(), Browser::start()) else { return };
    let (_child, url, _dir) = demo(&[]);
    for browser in [&mut first, &mut second] {
        browser.open(&format!("http://{}/demo/", url.0));
        eventually("it listens", || (text(browser, "state") == "Live").then_some(()));
    }
    // The second of them comes within the same second as a rule, and is said again.
    for (window, words) in [(&mut first, "<b>Hello</b>"), (&mut second, "שלום 🎉")] {
        let words = words.to_owned();
        window.run(&format!(
            "document.forms.say.text.value = '{words}'; document.forms.say.requestSubmit()"
        ));
    }
    for window in [&mut first, &mut second] {
        let said = eventually("both have been heard", || {
            let script =
                "return [...document.querySelectorAll('#said li')].map(li => li.innerText)";
            let said = window.run(script);
            (said[0] != "" && said[1] != "").then_some(said)
        });
        let mut said = [said[0].as_str().unwrap(), said[1].as_str().unwrap()];
        said.sort_unstable();
        assert_eq!(said, ["<b>Hello</b>", "שלום 🎉"], "text, and no markup");
    }
    let page = eventually("the field is empty for what comes next", || {
        let left = first.run("return document.forms.say.text.value");
        (left == "").then(|| text(&mut first, "told"))
    });
    assert!(page.contains("second"), "{page}");
}

#[test]
fn only_the_demos_own_page_publishes() {
    let (_child, url, _dir) = demo(&[]);
    let own = format!("Origin: http://{}\r\n", url.0);
    let host = url.0;
    let ask = |target: &str, fields: &str| {
        let mut client = Client::connect(host);
        let head = format!("POST {target} HTTP/1.1\r\nHost: {host}\r\n{fields}");
        client.send(format!("{head}Content-Length: 2\r\n\r\nhi"));
        client.response()
    };
    for fields in ["", "Origin: http://evil.example\r\n", "Origin: null\r\n"] {
        ask("/demo/guestbook", fields).refused(403);
    }
    ask("/demo/guestbook", &format!("{own}Sec-Fetch-Site: cross-site\r\n")).refused(403);
    ask("/demo/other", &own).refused(405);
    ask("/quotes/aapl", &own).refused(405);
    url.get("/demo/guestbook").refused(404);
    ask("/demo/guestbook", &own).expect(201);
    assert_eq!(url.get("/demo/guestbook").expect(200).text(), "hi");
}
