url = urlsplit(os.environ.get("MYSQL_URL", "mysql://root@localhost/shop"))
where = {"host": url.hostname, "port": url.port or 3306, "database": url.path.lstrip("/")}
db = pymysql.connect(user=url.username or "root", password=url.password or "", autocommit=True, **where)
cursor = db.cursor()
