//! The files of `--cacert`, `--cert` and `--key`, with a server that requires a certificate.

use tests::server::{Server, free_port};
use tests::tls::{Authority, arguments};

use crate::{code, lockctl, on, text};

/// A server, and the authority that signs for it and for its clients.
struct Secured {
    authority: Authority,
    _server: Server,
    url: String,
}

impl Secured {
    fn start() -> Self {
        let (authority, port) = (Authority::new(), free_port());
        let options =
            [arguments(&authority.options(port)), vec!["--tls-auth-clients".to_owned(), "yes".to_owned()]].concat();
        let server = Server::with(&options.iter().map(String::as_str).collect::<Vec<_>>());
        Self { authority, _server: server, url: format!("rediss://127.0.0.1:{port}") }
    }

    /// All three options, signed by this authority.
    fn options(authority: &Authority) -> [String; 6] {
        let file = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
        let [cert, key] = authority.signed().map(file);
        ["--cacert".to_owned(), file(authority.path()), "--cert".to_owned(), cert, "--key".to_owned(), key]
    }
}

/// The program's message, and its exit code.
fn refusal(url: &str, options: &[&str]) -> (String, i32) {
    let output = on(url, &[options, &["list"]].concat()).output().unwrap();
    (text(&output.stderr), code(&output))
}

#[test]
fn certificates_are_in_the_files_that_redis_cli_takes() {
    let secured = Secured::start();
    let options = Secured::options(&secured.authority);
    let [cacert, cacert_file, cert, cert_file, key, key_file] = options.each_ref().map(String::as_str);
    let all = [cacert, cacert_file, cert, cert_file, key, key_file];
    on(&secured.url, &[&all[..], &["list"]].concat()).assert().success();
    // After the verb, and for a URL that the verb takes.
    lockctl(&[&["bench", &secured.url, "--time", "10ms"][..], &all].concat()).assert().success();
    let run = ["run", "p:k", "--timeout", "0"];
    on(&secured.url, &[&run[..], &all, &["--", "true"]].concat()).assert().success();
    // The machine's authorities, if none is named.
    on(&secured.url, &[cert, cert_file, key, key_file, "list"]).env("SSL_CERT_FILE", cacert_file).assert().success();
    // The server requires a certificate, signed by its own authority.
    assert_eq!(refusal(&secured.url, &[cacert, cacert_file]).1, 69);
    let other = Authority::new();
    let other = (Secured::options(&other), other);
    let stranger = other.0.each_ref().map(String::as_str);
    assert_eq!(refusal(&secured.url, &[&[cacert, cacert_file][..], &stranger[2..]].concat()).1, 69);
    let (told, code) = refusal(&secured.url, &stranger);
    assert!(told.contains("not trusted") && code == 69, "{told}");
}

#[test]
fn a_wrong_file_is_named_with_what_is_wrong() {
    let secured = Secured::start();
    let options = Secured::options(&secured.authority);
    let [cacert, cacert_file, cert, cert_file, key, key_file] = options.each_ref().map(String::as_str);
    for (options, told) in [
        (&[cacert, "/nowhere.pem"][..], &["--cacert /nowhere.pem", "No such file"][..]),
        (&[cacert, key_file], &["--cacert", key_file, "no certificate"]),
        (&[cert, key_file, key, key_file], &["--cert", key_file, "no certificate"]),
        (&[cert, cert_file, key, cert_file], &["--key", cert_file]),
        (&[cert, cert_file], &["--key <FILE>"]),
        (&[key, key_file], &["--cert <FILE>"]),
    ] {
        let (text, code) = refusal(&secured.url, options);
        assert!(told.iter().all(|told| text.contains(told)) && code == 2, "{options:?}: {text}");
    }
    let (text, code) = refusal("redis://127.0.0.1:1", &[cacert, cacert_file]);
    assert!(text.contains("write rediss://") && code == 2, "{text}");
}
