"""Where the package is, and what its files are against RECORD: a real environment."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hostside_tools import DISTRIBUTION, PACKAGE, WHEEL, Environment, put_tool, sha256

from opsctl.hostside import install
from opsctl.hostside.errors import HostFault

pytest_plugins = ["hostside_fixtures"]


def test_locate_asks_the_services_own_python(env: Environment) -> None:
    found = install.locate(str(env.python), DISTRIBUTION, PACKAGE)
    assert found["version"] == "1.0"
    assert found["package_dir"] == str(env.package_dir)
    assert found["record"] == str(env.dist_info / "RECORD")
    assert found["dist_info"] == str(env.dist_info)
    assert found["installer"] == "uv"
    assert found["editable"] is False
    assert found["prefix"] == str(env.root / "env")
    assert found["python_version"].startswith("3.")


def test_locate_does_not_import_the_package(env: Environment) -> None:
    (env.package_dir / "__init__.py").write_text("raise SystemExit(3)")
    assert install.locate(str(env.python), DISTRIBUTION, PACKAGE)["version"] == "1.0"


def test_the_connecting_users_python_variables_do_not_count(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoy = env.root / "decoy" / PACKAGE
    decoy.mkdir(parents=True)
    (decoy / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(decoy.parent))
    monkeypatch.chdir(decoy.parent)
    assert install.locate(str(env.python), DISTRIBUTION, PACKAGE)["package_dir"] == str(
        env.package_dir
    )


def test_what_the_environments_own_start_up_prints_is_no_answer(env: Environment) -> None:
    (env.site_packages / "noise.pth").write_text("import sys; sys.stdout.write('hello')\n")
    assert install.locate(str(env.python), DISTRIBUTION, PACKAGE)["version"] == "1.0"
    assert install.compile_check(str(env.python), {"a.py": b"x = 1"}) == []


def test_an_editable_install_is_told_by_its_direct_url(env: Environment) -> None:
    direct = {"url": "file:///src", "dir_info": {"editable": True}}
    (env.dist_info / "direct_url.json").write_text(json.dumps(direct))
    assert install.locate(str(env.python), DISTRIBUTION, PACKAGE)["editable"] is True


def faults(python: str, distribution: str = DISTRIBUTION, package: str = PACKAGE) -> HostFault:
    with pytest.raises(HostFault) as caught:
        install.locate(python, distribution, package)
    assert caught.value.remedy
    return caught.value


def test_each_way_in_which_there_is_no_install(env: Environment) -> None:
    assert faults("/nonexistent/python").code == "python_missing"
    plain = env.root / "plain"
    plain.touch()
    assert faults(str(plain)).code == "python_missing"
    missing = faults(str(env.python), "no-such-dist")
    assert missing.code == "distribution_missing"
    assert missing.message == f"{env.python} has no distribution no-such-dist installed"
    assert faults(str(env.python), package="no_such_package").code == "distribution_missing"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'lib.so: cannot open' >&2; exit 127", "lib.so: cannot open"),
        ("echo hello", "Expecting value"),
        ("exec /nonexistent/interpreter", "not found"),
    ],
)
def test_a_python_that_does_not_run(tmp_path: Path, script: str, said: str) -> None:
    fault = faults(str(put_tool(tmp_path / "bin", "python", script)))
    assert fault.code == "python_broken"
    assert said in fault.message


def test_an_interpreter_of_the_wrong_machine_is_broken(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(57))
    python.chmod(0o755)
    assert faults(str(python)).code == "python_broken"


def test_record_in_hex(env: Environment) -> None:
    record = install.record_hashes(str(env.dist_info / "RECORD"))
    assert record == {f"{PACKAGE}/{name}": sha256(data) for name, data in WHEEL.items()}
    assert install.record_hashes("/nonexistent/RECORD") == {}


def test_a_file_name_with_a_comma_in_record(tmp_path: Path) -> None:
    empty = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    (tmp_path / "RECORD").write_text(f'"p/a,b.py",sha256={empty},0\np/md5.py,md5=x,0\n\n')
    assert install.record_hashes(str(tmp_path / "RECORD")) == {"p/a,b.py": sha256(b"")}


def test_facts_of_a_file(env: Environment) -> None:
    record = install.record_hashes(str(env.dist_info / "RECORD"))
    path = env.package_dir / "a.py"
    path.chmod(0o640)
    facts = install.file_facts(str(env.package_dir), PACKAGE, record, "a.py")
    assert facts == {
        "sha256": sha256(WHEEL["a.py"]),
        "record_sha256": sha256(WHEEL["a.py"]),
        "mode": 0o640,
        "uid": os.geteuid(),
        "gid": path.stat().st_gid,
        "symlink": False,
    }
    (env.package_dir / "link.py").symlink_to(path)
    assert install.file_facts(str(env.package_dir), PACKAGE, record, "link.py")["symlink"] is True
    for gone in ("gone.py", "a.py/below.py"):
        assert install.file_facts(str(env.package_dir), PACKAGE, record, gone) == {
            "sha256": None,
            "record_sha256": None,
        }


def test_the_audit_finds_what_the_wheel_does_not_explain(env: Environment) -> None:
    found = install.locate(str(env.python), DISTRIBUTION, PACKAGE)
    env.run("import demo_pkg.a")  # bytecode is no finding
    assert install.audit(found, PACKAGE) == {"modified": [], "missing": [], "extra": []}
    (env.package_dir / "a.py").write_text("edited")
    (env.package_dir / "sub" / "c.py").unlink()
    (env.package_dir / "sub" / "z.py").touch()
    (env.package_dir / "notes.txt").touch()
    assert install.audit(found, PACKAGE) == {
        "modified": ["a.py"],
        "missing": ["sub/c.py"],
        "extra": ["sub/z.py"],
    }


def test_every_source_that_does_not_compile_is_named(env: Environment) -> None:
    bad = install.compile_check(
        str(env.python),
        {
            "good.py": "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"),
            "utf8.py": "x = 'é'\n".encode(),
            "tab.py": b"if 1:\n\tx = 1\n        y = 2\n",
            "bytes.py": b"x = '\xff'\n",
            "null.py": b"x = 1\x00\n",
            "text.txt": b"def f(:",
        },
    )
    assert [(item["path"], item["line"]) for item in bad] == [
        ("tab.py", 3),
        ("bytes.py", 1),
        ("null.py", None),
    ]
    assert all(item["message"] for item in bad)
