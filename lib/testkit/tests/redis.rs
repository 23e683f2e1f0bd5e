//! Redis servers start, lose and keep what they promise, and leave nothing behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use onlooker_testkit::certificates::Certificates;
use onlooker_testkit::redis::{RedisCluster, RedisServer};
use onlooker_testkit::wait_until;

const SOON: Duration = Duration::from_secs(10);

fn is_running(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn restart_is_empty_on_the_same_port() {
    let server = RedisServer::start().unwrap();
    let (port, pid) = (server.port(), server.pid().unwrap());
    assert_eq!(server.cli(&["SET", "k", "v"]).unwrap(), "OK");
    server.kill().unwrap();
    assert!(!is_running(pid));
    assert!(server.cli(&["PING"]).is_err());
    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert_eq!(server.cli(&["EXISTS", "k"]).unwrap(), "0");
    let pid = server.pid().unwrap();
    drop(server);
    assert!(!is_running(pid));
}

#[test]
fn persistent_one_keeps_its_data_over_a_kill() {
    let server = RedisServer::builder().persistent().start().unwrap();
    server.cli(&["SET", "k", "v"]).unwrap();
    server.restart().unwrap();
    assert_eq!(server.cli(&["GET", "k"]).unwrap(), "v");
}

#[test]
fn settings_arrive() {
    let server =
        RedisServer::builder().maxmemory("8mb").policy("volatile-lru").password("s3cret").start().unwrap();
    assert_eq!(server.url(), format!("redis://:s3cret@127.0.0.1:{}/", server.port()));
    assert_eq!(server.cli(&["CONFIG", "GET", "maxmemory"]).unwrap(), "maxmemory\n8388608");
    assert!(server.cli(&["CONFIG", "GET", "maxmemory-policy"]).unwrap().ends_with("volatile-lru"));
}

#[test]
fn paused_one_answers_after_it_goes_on() {
    let server = RedisServer::start().unwrap();
    server.pause().unwrap();
    assert!(server.cli(&["PING"]).is_err());
    server.resume().unwrap();
    wait_until("an answer", SOON, || server.cli(&["PING"]).is_ok()).unwrap();
}

#[test]
fn tls_and_password_for_one_and_for_a_cluster() {
    let certificates = Certificates::make().unwrap();
    let node = RedisServer::builder().tls(&certificates).password("s3cret");
    let server = node.clone().start().unwrap();
    assert_eq!(server.url(), format!("rediss://:s3cret@127.0.0.1:{}/", server.port()));
    assert_eq!(server.cli(&["PING"]).unwrap(), "PONG");
    let cluster = RedisCluster::builder().node(node).replicas(1).start().unwrap();
    assert_eq!(cluster.urls().len(), 6);
}

#[test]
fn one_that_cannot_start_says_why_at_once() {
    let error = RedisServer::builder().policy("no-such-policy").start().unwrap_err();
    assert!(format!("{error:#}").contains("maxmemory-policy"), "{error:#}");
}

#[test]
fn cluster_is_whole_again_after_a_node_was_killed() {
    let cluster = RedisCluster::start().unwrap();
    assert_eq!(cluster.nodes().len(), 3);
    cluster.nodes()[1].kill().unwrap();
    let state = || cluster.nodes()[0].cli(&["CLUSTER", "INFO"]).unwrap();
    wait_until("the others to notice", SOON, || state().contains("cluster_state:fail")).unwrap();
    cluster.nodes()[1].restart().unwrap();
    cluster.wait_whole(SOON).unwrap();
}
