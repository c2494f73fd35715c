#!/usr/bin/env python3
"""Fills the databases of a gateway that does not run with many employees and sessions.

    fill.py DATA_DIR [--sessions N] [--employees N] [--expired] [--linked]

The gateway must have run once with this data directory: it makes the tables and the key. Sessions are distributed over
the employees; each employee holds the role `user`. The script is repeatable: it adds to what is there under its own ids.
"""

import argparse
import hashlib
import json
import pathlib
import sqlite3
import time

CORP = "wwdemo"
PARTNER = "wwpartner"
LIFETIME = 8 * 3600 * 1000
USER_AGENT = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 "
    "Safari/537.36 wxwork/4.1.27 MicroMessenger/7.0.1"
)


def employee_id(number):
    return f"p{number:07}"


def name_of(number):
    return f"Employee {number}"


def session_id(number):
    return hashlib.sha256(f"session {number}".encode()).hexdigest()[:22]


def newest_key(data_dir):
    """The file of the key that signs; its name is the key's id."""
    return max((data_dir / "keys").glob("*-*-*.pem"), key=lambda file: int(file.stem.split("-")[1]))


def open_fast(path):
    """Opens a file for one large change; a crash would leave it unusable."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA cache_size = -262144")
    return database


def fill(database, tables, insert):
    """Runs `insert` without the indexes of the tables, which are sorted once afterwards instead."""
    marks = ", ".join("?" for _ in tables)
    indexes = database.execute(
        f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ({marks})", tables
    ).fetchall()
    database.execute("BEGIN")
    for name, _ in indexes:
        database.execute(f'DROP INDEX "{name}"')
    insert()
    for _, sql in indexes:
        database.execute(sql)
    database.execute("COMMIT")
    database.execute("PRAGMA journal_mode = WAL")
    database.close()


def fill_directory(path, employees, linked, now):
    database = open_fast(path)

    def insert():
        database.execute("INSERT INTO roles (name) VALUES ('user') ON CONFLICT (name) DO NOTHING")
        (role,) = database.execute("SELECT id FROM roles WHERE name = 'user'").fetchone()
        database.executemany(
            "INSERT OR IGNORE INTO employees (corp_id, employee_id, name, department, avatar, created_at, ever_assigned,"
            " platform_checked_at, platform_active_at) VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?)",
            (
                (CORP, employee_id(number), name_of(number), f"Department {number % 500}",
                 f"https://avatars.example.com/{number}.png", now, now, now)
                for number in range(employees)
            ),
        )
        database.executemany(
            "INSERT OR IGNORE INTO user_roles (corp_id, employee_id, role_id) VALUES (?, ?, ?)",
            ((CORP, employee_id(number), role) for number in range(employees)),
        )
        if linked:
            database.executemany(
                "INSERT OR IGNORE INTO platform_links (corp_id, user_id, employee_corp_id, employee_id, requested_at,"
                " approved_by, approved_at) VALUES (?, ?, ?, ?, ?, 'uid 0', ?)",
                ((PARTNER, f"m{number}", CORP, employee_id(number), now, now) for number in range(employees)),
            )

    fill(database, ["employees", "user_roles", "platform_links"], insert)


def session(number, owner, key, linked, issued, expires):
    return {
        "id": session_id(number), "version": 1, "corp_id": CORP, "employee_id": employee_id(owner),
        "name": name_of(owner), "department": f"Department {owner % 500}",
        "avatar": f"https://avatars.example.com/{owner}.png", "roles": ["user"], "current_role": "user",
        "login_method": "qrcode", "login_source": "qrcode", "platform_sign_in_at": issued, "stage": "full",
        "stepped_up_until": None, "issued_at": issued, "expires_at": expires, "key_id": key, "password_id": None,
        "platform_account": {"corp_id": PARTNER, "user_id": f"m{owner}"} if linked else None,
        "new_device": False, "address": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "user_agent": USER_AGENT,
    }


def fill_store(path, sessions, employees, key, linked, expired, now):
    database = open_fast(path)
    issued, expires = (now - LIFETIME - 60_000, now - 60_000) if expired else (now, now + LIFETIME)
    # In order of their ids, so that the table is written from its beginning to its end.
    numbers = sorted(range(sessions), key=session_id)

    def row(number):
        record = session(number, number % employees, key, linked, issued, expires)
        return (record["id"], CORP, record["employee_id"], 1, issued, expires,
                json.dumps(record, separators=(",", ":")))

    def insert():
        database.executemany(
            "INSERT OR REPLACE INTO sessions (id, corp_id, employee_id, version, issued_at, expires_at, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (row(number) for number in numbers),
        )
        if expired:
            database.executemany(
                "INSERT OR REPLACE INTO seen (id, at) VALUES (?, ?)", ((session_id(n), expires) for n in numbers)
            )

    fill(database, ["sessions", "seen"], insert)


def main():
    arguments = argparse.ArgumentParser(description="fills the databases of a gateway that does not run")
    arguments.add_argument("data_dir", type=pathlib.Path)
    arguments.add_argument("--sessions", type=int, default=1_000_000)
    arguments.add_argument("--employees", type=int, help="as many as sessions by default")
    arguments.add_argument("--expired", action="store_true", help="the sessions have expired a minute ago")
    arguments.add_argument("--linked", action="store_true", help="the sessions came through links of a partner's members")
    options = arguments.parse_args()
    employees = options.employees or options.sessions
    key = newest_key(options.data_dir).stem
    now, start = int(time.time() * 1000), time.monotonic()
    fill_directory(options.data_dir / "directory.db", employees, options.linked, now)
    fill_store(options.data_dir / "state.db", options.sessions, employees, key, options.linked, options.expired, now)
    print(f"{employees} employees, {options.sessions} sessions in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
