//! A large file that changes while it is sent: the client must see that something is wrong. What
//! has left is of the old file, and what could follow is not, so the connection ends early.

use crate::support::{Client, Server, Site, eventually};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

const LARGE: u64 = 64 * 1024 * 1024;

/// A client that has begun to read the large file, and stopped.
fn stalled(server: &Server, fields: &str) -> (Client, u64, u64) {
    let mut client = server.reader();
    let response = client.open("/large.bin", fields).expect_one_of(&[200, 206]);
    let promised = response.field("content-length").unwrap().parse().unwrap();
    let begun = client.take().unwrap().len() as u64;
    eventually("the file is being sent", || {
        (server.figure("counters/connections_writing") >= 1).then_some(())
    });
    (client, promised, begun)
}

/// Reads to the end of the connection.
fn rest(client: &mut Client) -> u64 {
    let mut bytes = 0;
    while let Ok(some) = client.take() {
        bytes += some.len() as u64;
    }
    bytes
}

fn writer(site: &Site) -> File {
    File::options().write(true).open(site.path("large.bin")).unwrap()
}

#[test]
fn a_file_that_shrinks_ends_the_connection() {
    for length in [0, 1_000_000, LARGE - 1] {
        let site = Site::of(&[]);
        site.sparse("large.bin", LARGE);
        let server = site.serve("");
        let (mut client, promised, begun) = stalled(&server, "");
        assert_eq!(promised, LARGE);
        writer(&site).set_len(length).unwrap();
        // Never padded, and never the head of another answer.
        let _ = client.try_send(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
        let received = begun + rest(&mut client);
        assert!(received < LARGE, "{received}");
        server.settled("files_cut", 1);
        // The next one is told of what there is now.
        let now = server.reader().ask("HEAD", "/large.bin", "", b"").expect(200);
        assert_eq!(now.field("content-length"), Some(&*length.to_string()));
    }
}

#[test]
fn a_file_that_is_written_to_ends_the_connection() {
    let writes: [fn(&File); 2] = [
        |file| file.write_all_at(b"new", LARGE - 3).unwrap(),
        |mut file| file.write_all(&[b'x'; 100_000]).unwrap(),
    ];
    for write in writes {
        let site = Site::of(&[]);
        site.sparse("large.bin", LARGE);
        let server = site.serve("");
        let (mut client, promised, begun) = stalled(&server, "");
        write(&writer(&site));
        let received = begun + rest(&mut client);
        assert!(received < promised, "{received}");
        server.settled("files_cut", 1);
    }
}

#[test]
fn parts_of_a_file_that_shrinks_end_the_connection_too() {
    let site = Site::of(&[]);
    site.sparse("large.bin", LARGE);
    let server = site.serve("");
    let fields = format!("Range: bytes=0-{},{}-\r\n", LARGE / 2, LARGE - 1_000);
    let (mut client, promised, begun) = stalled(&server, &fields);
    writer(&site).set_len(1_000_000).unwrap();
    let received = begun + rest(&mut client);
    assert!(received < promised, "{received} of {promised}");
}

#[test]
fn a_file_that_is_replaced_or_removed_is_sent_to_its_end() {
    let removals: [fn(&Site); 2] =
        [|site| site.replace("large.bin", b"new"), |site| site.remove("large.bin")];
    for remove in removals {
        let site = Site::of(&[]);
        site.sparse("large.bin", LARGE);
        let server = site.serve("");
        let (mut client, promised, begun) = stalled(&server, "");
        remove(&site);
        let mut received = begun;
        while received < promised {
            received += client.take().expect("the rest of the file").len() as u64;
        }
        assert_eq!(received, LARGE);
        // And the connection goes on.
        client.get("/none").refused(404);
        assert_eq!(server.figure("counters/files_cut"), 0);
    }
}
