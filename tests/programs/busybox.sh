# What a shell and its tools do, whose output must be the same on every kernel: no process numbers, no
# times of day, no sizes of what kernels have of their own. Run by `busybox sh`.
export LC_ALL=C
cd /tmp
b=/busybox
mkdir -p /bin; $b --install -s /bin; ls /bin | wc -l
say() { echo "== $*"; }

say pipes
echo one | cat
seq 1 5 | sort -rn | head -3
seq 1 20000 | wc -l
seq 1 20000 | awk '{ sum += $1 } END { print sum }'
yes | head -1000 | uniq -c | sed 's/^ *//'
echo a b c | tr a-c A-C | sed 's/ /-/g'
(echo left; echo right >&2) 2>&1 | sort
false | true; echo "status of the last: $?"
dd if=/dev/zero bs=1024 count=300 2>/dev/null | wc -c
{ sleep 0.1; echo late; } | { read word; echo "read $word"; }

say arithmetic
echo $((1 + 2 * 3)) $((7 / 2)) $((7 % 3)) $((1 << 40)) $((0x10 | 1)) $((-5 + 2))
i=0; while [ $i -lt 5 ]; do i=$((i + 1)); done; echo "i is $i"
for n in 1 2 3; do for m in 1 2 3; do printf '%d ' $((n * m)); done; echo; done
printf '%05.1f|%-6s|%x|%c\n' 3.14159 ab 255 xyz
expr 6 \* 7
echo '3 k 2 v p' | dc 2>/dev/null || echo "no dc"

say redirections
echo first > f; echo second >> f; cat < f
cat f nothing > out 2> err; echo "status $?"; cat out; wc -l < err
exec 3> three; echo to three >&3; exec 3>&-; cat three
exec 4< f; read line <&4; echo "line $line"; read line <&4; echo "line $line"; exec 4<&-
cat <<END
here $((1 + 1)) $b
  a second line
END
cat <<'END'
not $expanded
END
cat <<-END
	without the tab
	END
echo to nowhere > /dev/null; echo "null is empty:" $(wc -c < /dev/null)
(echo out; echo err >&2) > both 2>&1; sort both
: > empty; [ -s empty ] || echo "empty is empty"
echo noclobber > nc; set -C; (echo again > nc) 2>/dev/null || echo "kept"; set +C; cat nc

say processes
sh -c 'exit 3'; echo "exit $?"
sh -c 'kill -9 $$' 2>/dev/null; echo "killed $?"
sh -c 'kill -TERM $$' 2>/dev/null; echo "terminated $?"
(exit 42); echo "subshell $?"
sleep 10 & pid=$!; kill $pid; wait $pid 2>/dev/null; echo "waited $?"
for n in 3 1 2; do (sleep 0.$n; echo "slept $n") & done; wait; echo all
(sleep 0.2; exit 7) & wait $!; echo "child $?"
x=$(echo nested $(echo deeper $(echo still))); echo "$x"
f() { local a=$1; [ $a -gt 0 ] && { f $((a - 1)); echo -n "$a "; }; return 0; }; f 10; echo
kill -0 $$ && echo "alive"
kill -0 99999 2>/dev/null || echo "nobody"
echo 'echo script $0 $1 $#' > s.sh; sh s.sh a b
printf '#!/busybox sh\necho "interpreted $1 $2"\n' > i.sh; chmod +x i.sh; ./i.sh x y
chmod -x i.sh; ./i.sh 2>/dev/null; echo "not executable $?"
./nothing-there 2>/dev/null; echo "not there $?"
env -i A=1 $b env
exec 5>&1; (echo through five >&5) > /dev/null; exec 5>&-
ulimit -c; umask; umask 027; umask; touch u; ls -l u | cut -c1-10; umask 022

say signals
trap 'echo "got USR1"' USR1; kill -USR1 $$; echo after
trap 'echo "got USR2"' USR2; (sleep 0.1; kill -USR2 $$) & wait $!; wait; echo "after wait"
trap '' TERM; kill -TERM $$; echo "ignored TERM"
trap - TERM; sh -c 'trap "echo inner exit" EXIT; echo inner'
sh -c 'trap "echo term; exit 5" TERM; kill -TERM $$; echo not reached'; echo "status $?"
(trap 'echo child INT; exit 1' INT; kill -INT $(sh -c 'echo $PPID'); sleep 1); echo "status $?"
trap 'echo "alarm"; exit 9' ALRM; sh -c 'sleep 0.2' ; trap - ALRM
timeout 0.2 sleep 5; echo "timeout $?"
sh -c 'kill -STOP $$; echo continued' & pid=$!; sleep 0.2; kill -CONT $pid; wait $pid; echo "cont $?"
yes > /dev/null & pid=$!; sleep 0.1; kill -KILL $pid; wait $pid 2>/dev/null; echo "yes $?"
(sleep 0.1; kill -PIPE $$) & trap 'echo pipe' PIPE; wait $!; wait; trap - PIPE

say files
mkdir -p d/e/f; for n in 3 1 2; do echo "file $n" > d/e/$n; done; touch d/e/f/deep
find d | sort
find d -type f -name '[12]' | sort | xargs cat
find d -type d | wc -l
ln -s e/1 d/link; readlink d/link; cat d/link
ln d/e/1 d/hard; ls -l d/hard | awk '{ print $2 }'; echo more >> d/hard; cat d/e/1
mv d/e/2 d/moved; cat d/moved; [ -e d/e/2 ] || echo "moved away"
cp -r d copy; diff -r d copy && echo "copies are equal"
echo change >> copy/moved; diff d/moved copy/moved
rm -r copy; [ -d copy ] || echo "removed"
rmdir d/e 2>/dev/null || echo "not empty"
ln -s nowhere dangling; [ -L dangling ] && [ ! -e dangling ] && echo "dangles"
ln -s loop loop; cat loop 2>/dev/null || echo "loops"
cd d/e/f; pwd; cd ..; pwd; cd ../..; pwd; cd - > /dev/null; pwd; cd /tmp
mkdir m; chmod 700 m; ls -ld m | cut -c1-10; chmod 1777 m; ls -ld m | cut -c1-10
truncate -s 10000 t; wc -c < t; stat -c '%s %F %a' t
dd if=/dev/zero of=t bs=1 count=3 seek=5 conv=notrunc 2>/dev/null; wc -c < t
printf 'abcdefghij' > ten; dd if=ten bs=2 skip=1 count=2 2>/dev/null; echo; tail -c 3 ten; echo
mkfifo p; echo "through a fifo" > p & cat p; wait
touch -d '2020-01-02 03:04:05' old; stat -c %Y old; date -u -r old '+%Y-%m-%d %H:%M:%S'
[ old -ot ten ] && echo "older"
for f in *; do [ -d $f ] && echo "folder $f"; done
ls -1 d d/e
ls -a d/e/f
echo d/*/[0-9]
test -p p && echo fifo; test -c /dev/null && echo device; test -r ten -a -w ten && echo "rw"
du -s d > /dev/null && echo "du runs"

say tools
sort -t: -k2 -n <<END
a:3
b:1
c:2
END
printf 'x 1\ny 2\nx 3\n' | awk '{ s[$1] += $2 } END { for (k in s) print k, s[k] }' | sort
printf 'one two\nthree four\n' | sed -n 's/\(.*\) \(.*\)/\2 \1/p'
printf 'a\nb\nb\nc\n' | uniq -d
printf 'apple\nbanana\ncherry\n' | grep -n an
printf 'a,b,c\n' | cut -d, -f2
seq 1 10 | paste -sd+ | bc 2>/dev/null || seq 1 10 | paste -sd+
tar cf a.tar d ten; tar tf a.tar | sort; mkdir x; tar xf a.tar -C x; cat x/ten; echo; cat x/d/link
tar czf a.tgz d; tar tzf a.tgz | wc -l; gzip -c ten | gunzip -c; echo
(cd d; find . | cpio -o -H newc 2>/dev/null) | cpio -t 2>/dev/null | sort
seq 1 1000 | md5sum; seq 1 1000 | sha256sum; seq 1 1000 | sha1sum
seq 1 100 > h; head -2 h; tail -2 h; tail -n +99 h; sed -n '40,42p' h; awk 'NR % 40 == 0' h
od -c ten | head -1; hexdump -C ten | head -1; printf 'abc' | xxd -p 2>/dev/null || echo
echo hello | rev; seq 3 | tac; echo abc | fold -w 2
basename /a/b/c.txt .txt; dirname /a/b/c.txt
printf '%s\n' $b | grep -q busybox && echo found
date -u -d @86400 '+%Y-%m-%d'
echo "a  b" | while read x y; do echo "[$x][$y]"; done
IFS=:; set -- $(echo 1:2:3); echo $# $2; unset IFS
case abc in a*) echo "starts with a";; *) echo other;; esac
x=hello.tar.gz; echo ${x%.gz} ${x%%.*} ${x#*.} ${#x} ${y:-unset}
seq 1 300 | xargs -n 100 echo | wc -l

say proc
readlink /proc/self/exe; cat /proc/self/comm; tr '\0' ' ' < /proc/self/cmdline; echo
grep -c . /proc/self/maps > /dev/null && echo "maps"; grep -q stack /proc/self/maps || true
grep -q '^Name:' /proc/self/status && echo status; cat /proc/sys/kernel/ostype
echo again | cat /proc/self/fd/0; sh -c 'echo error > /proc/self/fd/2' 2>&1 | cat
[ "$(readlink /proc/self/fd/1)" ] && echo "fd"; cat /proc/self/environ | tr '\0' '\n' | grep LC_ALL
ls /proc/$$/fd | head -1; [ -d /proc/$$ ] && echo "mine"; [ -d /proc/99999 ] || echo "none"
cat /sys/devices/system/cpu/online > /dev/null && echo cpus
head -c 100 /dev/urandom | wc -c; head -c 5 /dev/zero | od -An -tx1; echo x > /dev/full || echo "full"
mount -t tmpfs none m && echo in > m/file && cat m/file && umount m && ls m

say users
id -u; chmod 600 ten; chown 1000:1000 f; stat -c '%u %g' f
rm -rf /tmp/*; ls /tmp | wc -l
trap 'echo "the end"' EXIT
