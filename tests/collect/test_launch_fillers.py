"""Commands that another program puts together: what it fills in is not known, and no flag of the server."""

from __future__ import annotations

import pytest

from sgdoctor.collect import launch
from sgdoctor.collect.launch_bash import Walk, follow
from sgdoctor.errors import UsageError

SERVER = "python3 -m sglang.launch_server --model-path /m"


def words(script: str) -> list[list[str]]:
    """Return the words of each server; ``?`` stands before those that are not known."""
    walked = Walk("run.sh")
    follow(script, walked)
    return [
        [f"{'' if word.known else '?'}{word.text}" for word in found.launch.arguments]
        for found in walked.found
    ]


FILLED = {
    f"seq 2 | xargs -n1 {SERVER} --port": ["--port", "?{}"],
    f"seq 2 | xargs -P 2 -I{{}} {SERVER} --port 300{{}}": ["--port", "?300{}"],
    f"seq 2 | xargs -I % sh -c '{SERVER} --port 300% --tp 2'": ["--port", "?300%", "--tp", "2"],
    f"seq 2 | xargs -i {SERVER} --port {{}}": ["--port", "?{}"],
    f"seq 2 | xargs --replace=X {SERVER} --port X": ["--port", "?X"],
    f"seq 2 | xargs -n 1 docker run -it --gpus all image {SERVER} --tp 2 --port": [
        "--tp",
        "2",
        "--port",
        "?{}",
    ],
    f"parallel -j2 {SERVER} --port {{}} ::: 1 2": ["--port", "?{}"],
    f"parallel -j2 {SERVER} --port ::: 1 2": ["--port", "?{}"],
    f"parallel '{SERVER} --port 300{{1}} --tp {{2}}' ::: 0 1 :::+ 2 4": ["--port", "?300{1}", "--tp", "?{2}"],
    f"parallel {SERVER} --base-gpu-id {{%}} --port :::: ports.txt": ["--base-gpu-id", "?{%}", "--port"],
}


@pytest.mark.parametrize("script", FILLED)
def test_what_is_filled_in_is_not_known(script):
    (found,) = words(script)
    assert found == ["--model-path", "/m", *FILLED[script]]


TYPED = {
    f'screen -S s -X stuff "{SERVER} --tp 2\\n"': ["--tp", "2"],
    f"screen -S s -X stuff '{SERVER} --tp 2^M'": ["--tp", "2"],
    f"screen -S s -X stuff $'{SERVER} --tp 2\\r'": ["--tp", "2"],
    f"tmux send-keys -t s '{SERVER} --tp 2' C-m": ["--tp", "2"],
    f"tmux new-session -d -s s '{SERVER} --tp 2; exec bash'": ["--tp", "2"],
    f"screen -dmS s bash -c '{SERVER} --tp 2'": ["--tp", "2"],
    f"pm2 start '{SERVER} --tp 2' --name s": ["--tp", "2"],
    "pm2 start python3 --name s -- -m sglang.launch_server --model-path /m --tp 2": ["--tp", "2"],
    f"env -uX -S '{SERVER} --tp' 2": ["--tp", "2"],
    f"env --split-string='{SERVER} --tp 2'": ["--tp", "2"],
}


@pytest.mark.parametrize("script", TYPED)
def test_what_a_program_types_or_splits(script):
    assert words(script) == [["--model-path", "/m", *TYPED[script]]]


REMOTE = {
    f"ssh node <<EOF\n{SERVER}\nEOF\n": True,
    f"ssh -p 22 -o A=no -i key user@node <<EOF\n{SERVER}\nEOF\n": True,
    f"sshpass -f key ssh node bash -s <<EOF\n{SERVER}\nEOF\n": True,
    f"ssh node 'cat > run.sh' <<EOF\n{SERVER}\nEOF\n": False,
    f"ssh -p 22 node cat <<EOF\n{SERVER}\nEOF\n": False,
    f"cat <<EOF | ssh node\n{SERVER}\nEOF\n": False,
    f"ssh {'-p ' * 99}22 node cat <<EOF\n{SERVER}\nEOF\n": False,
}


@pytest.mark.parametrize("script", REMOTE)
def test_a_here_document_is_a_script_only_for_a_shell(script):
    assert words(script) == ([["--model-path", "/m"]] if REMOTE[script] else [])


def test_a_file_of_another_kind_is_refused_with_the_line_that_names_the_server(tmp_path):
    file = tmp_path / "supervisord.conf"
    file.write_text(f"[program:sglang]\ncommand={SERVER}\n")

    with pytest.raises(
        UsageError, match=r"supervisord.conf:2: SGLang is named there, but .* holds no sglang"
    ):
        launch.read_script(file)
