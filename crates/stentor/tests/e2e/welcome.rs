//! What every server has for a browser: the client, and a page at `/` where there is no site.

use crate::support::{Browser, Server, TempDir, eventually};

const CLIENT: &str = include_str!("../../../../clients/js/stentor.js");

#[test]
fn the_browser_client_comes_from_every_server() {
    let server = Server::start();
    let tag = server.public.get("/-/stentor.js").expect(200).tag().to_owned();
    assert!(tag.starts_with('"'), "strong: {tag}");
    for url in [server.public, server.control, Server::start().public] {
        let response = url.get("/-/stentor.js?v=1").expect(200);
        assert_eq!(response.text(), CLIENT);
        assert_eq!(response.field("content-type"), Some("text/javascript; charset=utf-8"));
        assert_eq!(response.field("cache-control"), Some("no-cache"));
        assert_eq!(response.tag(), tag, "the same file has the same tag at every server");
        url.ask("GET", "/-/stentor.js", &format!("If-None-Match: {tag}\r\n"), b"").expect(304);
        url.ask("GET", "/-/stentor.js", "If-None-Match: \"other\"\r\n", b"").expect(200);
        let head = url.ask("HEAD", "/-/stentor.js", "", b"").expect(200);
        assert_eq!(head.field("content-length"), response.field("content-length"));
        url.put("/-/stentor.js", "text/javascript", b"mine()").refused(405);
    }
    let packed = eventually("it is packed", || {
        let fields = "Accept-Encoding: gzip\r\n";
        let response = server.public.ask("GET", "/-/stentor.js", fields, b"").expect(200);
        (response.field("content-encoding") == Some("gzip")).then_some(response)
    });
    assert!(packed.body.len() < CLIENT.len() / 2);
    assert_ne!(packed.tag(), tag, "another form has another tag");
}

#[test]
fn a_browser_that_opens_a_server_without_a_site_is_told_what_it_is() {
    let server = Server::start();
    let accept = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";
    for (url, publish_at) in [(server.public, "127.0.0.1:8081"), (server.control, "localhost")] {
        let page = url.ask("GET", "/?from=bookmark", accept, b"").expect(200);
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(page.field("vary"), Some("Accept"));
        assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
        let text = page.text();
        assert!(text.contains("curl -i http://localhost/hello"), "{text}");
        assert!(text.contains(&format!("curl -X PUT http://{publish_at}/hello ")), "{text}");
        assert!(!text.contains("{own}") && !text.contains("{control}"), "{text}");
        let head = url.ask("HEAD", "/", accept, b"").expect(200);
        assert_eq!(head.field("content-length"), page.field("content-length"));
        // Nothing else is what it was not.
        for fields in ["", "Accept: */*\r\n", "Accept: text/plain\r\n", "Accept: text/html;q=0\r\n"]
        {
            assert_eq!(url.ask("GET", "/", fields, b"").expect(400).code(), "topic_invalid");
        }
        for target in ["/a/", "//", "/."] {
            url.ask("GET", target, accept, b"").expect(400);
        }
        url.ask("GET", "/none", accept, b"").expect(404);
    }
    server.control.ask("PUT", "/", accept, b"x").expect(400);
    server.control.ask("DELETE", "/", accept, b"").expect(400);
    server.public.ask("PUT", "/", accept, b"x").expect(405);
    let mut client = server.reader();
    client.send(format!("GET / HTTP/1.1\r\nHost: $(reboot)\r\n{accept}\r\n"));
    assert!(!client.response().text().contains("reboot"), "what is no address is not shown");
}

#[test]
fn a_site_comes_before_that_page() {
    let accept = "Accept: text/html\r\n";
    let dir = TempDir::new();
    let root = dir.path().display();
    let mounted = |path: &str| format!("[[static]]\nroot = '{root}'\npath = '{path}'\n");
    let site = Server::configured(&mounted("/"));
    site.public.ask("GET", "/", accept, b"").expect(404);
    std::fs::write(dir.path().join("index.html"), "mine").unwrap();
    eventually("its index is there", || {
        let response = site.public.ask("GET", "/", accept, b"");
        (response.status == 200).then(|| assert_eq!(response.text(), "mine"))
    });
    let beside = Server::configured(&mounted("/docs"));
    assert!(beside.public.ask("GET", "/", accept, b"").expect(200).text().contains("Stentor is"));
}

#[test]
fn that_page_shows_what_it_says() {
    let Some(mut browser) = Browser::start() else { return };
    let server = Server::start();
    browser.open(&format!("http://{}/", server.public.0));
    let shows = |browser: &mut Browser, what: &str| {
        eventually(&format!("it shows {what}"), || {
            let shown = browser.run("return document.querySelector('#hello').textContent");
            (shown == what).then_some(())
        });
    };
    shows(&mut browser, "Nothing yet at /hello.");
    server.publish("/hello", "<b>Hello</b>");
    shows(&mut browser, "<b>Hello</b>");
}
