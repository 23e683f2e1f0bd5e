//! Kafka brokers start, are killed and paused, and come back with what they had.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use onlooker_testkit::certificates::Certificates;
use onlooker_testkit::kafka::{KafkaCluster, KafkaServer};
use onlooker_testkit::wait_until;

const SOON: Duration = Duration::from_secs(30);

/// Whether the broker answers an ApiVersions request (key 18, version 0) with error code 0.
fn answers(bootstrap: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(bootstrap)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        // Size, key, version, correlation id 7, no client id.
        stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff])?;
        let mut head = [0; 10];
        stream.read_exact(&mut head)?;
        Ok(head[4..] == [0, 0, 0, 7, 0, 0])
    };
    ask().unwrap_or(false)
}

#[test]
fn broker_is_killed_paused_and_restarted_with_its_data() {
    let server = KafkaServer::start().unwrap();
    let bootstrap = server.bootstrap();
    assert!(answers(&bootstrap));
    server.pause().unwrap();
    assert!(!answers(&bootstrap));
    server.resume().unwrap();
    wait_until("an answer", SOON, || answers(&bootstrap)).unwrap();
    server.kill().unwrap();
    assert!(!answers(&bootstrap));
    server.restart().unwrap();
    assert!(answers(&bootstrap));
    // A restart over an empty storage would not start: it is formatted once.
    server.stop(SOON).unwrap();
    assert!(!server.is_alive());
}

#[test]
fn broken_setting_says_why_long_before_the_time_out() {
    let error = KafkaServer::builder().property("process.roles", "spectator").start().unwrap_err();
    assert!(format!("{error:#}").contains("spectator"), "{error:#}");
}

#[test]
fn secure_listener_shows_the_certificate() {
    let certificates = Certificates::make().unwrap();
    let server = KafkaServer::builder().login("app", "s3cret", &certificates).start().unwrap();
    let verify = |authority| {
        let mut client = Command::new("openssl");
        client.args(["s_client", "-verify_return_error", "-connect", &server.secure_bootstrap().unwrap()]);
        client.arg("-CAfile").arg(authority).stdin(Stdio::null()).output().unwrap().status.success()
    };
    assert!(verify(certificates.authority()));
    assert!(!verify(Certificates::make().unwrap().authority()));
}

#[test]
fn cluster_goes_on_without_one_of_three() {
    let cluster = KafkaCluster::start().unwrap();
    let [first, second, third] = cluster.nodes() else { panic!("three brokers") };
    second.kill().unwrap();
    assert!(answers(&first.bootstrap()) && answers(&third.bootstrap()));
    second.restart().unwrap();
    assert!(answers(&second.bootstrap()));
    assert_eq!(cluster.bootstrap().split(',').count(), 3);
}
